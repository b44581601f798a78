"""The page that shows how a model decodes, and its server.

Only server.py and protection.py need FastAPI and uvicorn.
"""
