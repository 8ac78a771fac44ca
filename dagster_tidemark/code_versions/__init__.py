"""Detects changes of an asset's code since its `code_version` was assigned, from the syntax tree.

`modules` and `project` find definitions, and `normal_form` writes a definition without cosmetic details. `scopes` and
`references` resolve its names, `effects` finds other statements that belong to it, and `fingerprint` follows all
references. `assets` starts at the loaded code location, and `lock_file` stores the result. Fingerprints never include
Tidemark itself.
"""
