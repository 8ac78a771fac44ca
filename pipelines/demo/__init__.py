"""The sample feed of the online grocer: data to look at before one's own feeds are connected.

Belongs here: inventing the grocer's files and putting them into the landing bucket. Does not belong here:
anything the pipeline needs to run; a user deletes this folder together with the grocer's tables.
"""
