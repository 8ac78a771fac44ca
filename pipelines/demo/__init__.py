"""The sample feed: data to explore before you connect your own feeds.

Belongs here: generating files and writing them to the landing bucket. Does not belong here: anything the pipeline
needs to run. A user deletes the modules of this folder together with the grocer's tables.
"""
