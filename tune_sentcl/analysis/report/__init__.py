"""Reports on one or several studies: HTML, LaTeX, pictures and a data frame."""
