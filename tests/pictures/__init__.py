"""The pictures in the documents, each made from something real. `make pictures` makes them anew."""
