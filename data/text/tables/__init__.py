"""Tables of records: parquet, arrow, CSV and TSV, Hugging Face's data sets."""
