"""Tables of rows: results, claims, missing models, and training times."""
