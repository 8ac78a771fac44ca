"""What we learn: features in, a fitted model out.

Belongs here: pandas and machine learning libraries on features. Does not belong here: Dagster, Spark, and
where models are kept.
"""
