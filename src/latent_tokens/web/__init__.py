"""The page in which a person watches a model decode, and the small server behind it. FastAPI is imported by server.py alone."""
