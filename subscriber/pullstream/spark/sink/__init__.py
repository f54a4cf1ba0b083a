"""Publishing the rows of a DataFrame."""
