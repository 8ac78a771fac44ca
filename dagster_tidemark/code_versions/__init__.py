"""Detects code changes since an asset's `code_version` was assigned, by comparing syntax trees.

`modules` and `project` find definitions, and `normal_form` writes a definition without cosmetic details. `scopes` and
`references` resolve the names in a definition, `effects` and `library_changes` find statements elsewhere that change
the definition or a library, `options` finds code that reads other code, and `fingerprint` follows all references.
`assets` reads the loaded code location, and `lock_file` stores the result.
Fingerprints never include the code of Tidemark.
"""
