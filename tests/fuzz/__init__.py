"""Random programs through the whole pipeline, against eager."""
