"""Changed code tried on Iceberg branches before it is deployed: built, compared, published or dropped."""
