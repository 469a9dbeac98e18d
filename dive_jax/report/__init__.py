"""Numbers in; terminal text, Markdown, CSV, pictures and progress out."""
