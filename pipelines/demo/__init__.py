"""The sample feed: data to look at before one's own feeds are connected.

Belongs here: inventing files and putting them into the landing bucket. Does not belong here: anything the pipeline
needs to run; a user deletes the modules of this folder together with the grocer's tables.
"""
