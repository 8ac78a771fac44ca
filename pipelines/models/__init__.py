"""The models: features in, a fitted model out.

Belongs here: pandas and machine learning libraries on features. Does not belong here: Dagster, Spark, and
the storage of models.
"""
