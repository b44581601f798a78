"""The page that shows how a model decodes, as one HTML file."""
