"""_lean: what our own programs need not import, before they import anything. Only for whole processes of ours.

To check a notebook, nbformat loads jsonschema, which loads every checker of formats that is installed. One of them,
rfc3987_syntax, makes the grammar of web addresses first: 1.2 s in each process, and no notebook has a field for one.
jsonschema goes without it, as where it is not installed.
"""
import sys

sys.modules.setdefault("rfc3987_syntax", None)
