#!/usr/bin/env python3
"""Check an export of a client's history, with nothing but Python's standard library (3.11).

    verify-history.py AUDIT-JWKS.json EXPORT.ndjson [KEPT-HEAD ...]

It runs the module kindred.history of sdk/python, without what the SDK needs to call the service.
"""
import pathlib, sys, types

package = types.ModuleType("kindred")
package.__path__ = [str(pathlib.Path(__file__).resolve().parent.parent / "sdk" / "python" / "src" / "kindred")]
sys.modules["kindred"] = package

from kindred.history import main

sys.exit(main(sys.argv[1:]))
