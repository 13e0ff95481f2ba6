"""Reports on one or several studies: HTML, LaTeX, pictures and a frame."""
