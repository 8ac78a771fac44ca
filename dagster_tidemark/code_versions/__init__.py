"""Whether what computes an asset has changed since its `code_version` was given, told from the syntax tree.

`modules` and `project` find definitions, `normal_form` writes one without what is cosmetic, `scopes` and `references`
say what its names lead to, `effects` what else belongs to it, `fingerprint` goes through all of it. `assets` begins at
the loaded code location, `lock_file` keeps the result. The machinery is not part of any fingerprint.
"""
