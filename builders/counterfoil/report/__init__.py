"""How numbers reach people: words, tables, the document of results. It knows documents and rows,
not who made them."""
