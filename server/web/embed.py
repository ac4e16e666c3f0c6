#!/usr/bin/env python3
"""embed.py PAGE OUT: writes OUT, a C file with the page PAGE and its Content-Security-Policy.

The policy names the page's only style and its only script by their SHA-256, and allows connections to the page's own
server and nothing else. A page that could load something else is refused here, at build time.
"""
import base64
import hashlib
import re
import sys

POLICY = ("default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; connect-src 'self'; "
          "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
          "require-trusted-types-for 'script'; trusted-types 'none'")


def digest(page, element):
    found = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
    if len(found) != 1 or len(re.findall(rf"<{element}\b", page)) != 1:
        sys.exit(f"want exactly one <{element}> without attributes, not {len(found)}")
    return base64.b64encode(hashlib.sha256(found[0].encode()).digest()).decode()


def check(page):
    for forbidden in (r"https?://", r"@import", r"\burl\(", r"\sstyle=", r"\son[a-z]+=", r"\b(href|src)=\"(?!data:,)",
                      r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\("):
        found = re.search(forbidden, page)
        if found:
            line = page.count("\n", 0, found.start()) + 1
            sys.exit(f"line {line}: {found.group(0)!r}: the page may not have this")


def main(source, out):
    with open(source, encoding="utf-8") as file:
        page = file.read()
    check(page)
    policy = POLICY.format(script=digest(page, "script"), style=digest(page, "style"))
    data = page.encode()
    rows = [", ".join(str(byte) for byte in data[at:at + 24]) for at in range(0, len(data), 24)]
    with open(out, "w", encoding="utf-8") as file:
        file.write('#include "server/web/page.h"\n\nconst char web_page_policy[] =\n    "' + policy + '";\n'
                   + f"const size_t web_page_bytes = {len(data)};\n"
                   + "const unsigned char web_page[] = {\n" + ",\n".join(rows) + "};\n")


main(sys.argv[1], sys.argv[2])
