# SPDX-License-Identifier: Apache-2.0
"""The repository speaks the field's language: no private words, and sentences have a subject.

A private word is found as a word of its own and as a part of an identifier or a file name: "letter", hc_letter. The
words that are ours stand in docs/glossary.md.
"""

import re
import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENDS = (
    ".c",
    ".h",
    ".cu",
    ".pyx",
    ".pxd",
    ".pxi",
    ".py",
    ".pyi",
    ".md",
    ".sh",
    ".j2",
    ".toml",
    ".yml",
    "Makefile",
)
SELF = Path(__file__).relative_to(ROOT).as_posix()

SAY = {  # private word: what the field says
    "letter": "point-to-point message, p2p",
    "mail": "p2p",
    "slip": "header",
    "pile": "queue",
    "house": "node control segment",
    "seat": "slot of the mailbox table",
    "office": "mailbox table",
    "bell": "doorbell",
    "meeting": "rendezvous",
    "lane": "set queue (loop), channel (hierarchy)",
    "parcel": "staging buffer",
    "loan": "staging buffer, buffer cache",
    "lend": "pin, describe",
    "lender": "buffer cache",
    "ride": "copy, travel",
    "nap": "coalescing delay",
    "clash": "conflict",
    "card": "rank report; GPU",
}
IN_PROSE = {"room": "package, module"}  # in C it is the size of a buffer
FIELD = {"lane": ("kernels/", "dlpack", "device_arrays")}  # of a vector, of DLPack
MEANT = re.compile(  # the same letters in another word's company
    r"--mail-\w+|e-mail|MAIL_\w+|mail[-_](?:user|type)|\b\w+-letter\b|(?:small|capital|first) letters?|letters, digits|"
    r"(?:no|leave) room|room for|(?:warp|SIMD|vector|register)s?'? lanes?"
)
NOUNS = (
    "one|two|ranks?|threads?|bytes|bits?|messages?|files?|lines?|rows?|modules?|slots?|communicators?|samples|names?|"
    "seconds|elements|calls"
)
THINGS = (
    "rank|node|set|tensor|step|handle|group|batch|GPU|device|rail|chunk|launcher|field|thing|machine|host|process|"
    "message|byte|row|stage|round|generation|element"
)
PHRASES = {
    "per rank, not one a rank": rf"\b(?:{NOUNS}) an? (?:{THINGS})\b",
    "a sentence has a subject": r"(?:^[\W_]*|[.:!?)] |/\* ?|# ?)"
    r"(?:Who|Whose|Nobody|Of|That (?:are|the|an?|who|nobody)) (?![^.\n]*\?)",
    "shutdown reason": r"\blast[ _]words\b",
    "name the part, and what it does": r"\b(?:coming and going|at the wheel|better lost than|"
    r"class of (?:your|its|their) own|others than|words of whoever|(?:by|takes the) way of the host|"
    r"(?:its|their) own affair|nobody has heard of|what says more|whoever (?:asks|comes|came|wants|needs))\b",
}


def files() -> list[str]:
    """Name the text files of the repository. Transcripts and recorded output are data."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    skipped = (SELF, "CHANGELOG.md")  # they name old words
    names = [name for name in listed.split() if name.endswith(ENDS) and name not in skipped]
    return [name for name in names if (ROOT / name).is_file()]


def private_words(name: str, text: str) -> list[str]:
    """List the private words in a file, with what the field says."""
    banned = SAY if name.endswith((".c", ".h", ".cu", ".pyx", ".pxd", ".pxi")) else SAY | IN_PROSE
    banned = {word: say for word, say in banned.items() if not any(at in name for at in FIELD.get(word, ()))}
    forms = {form: f"{word}: say {say}" for word, say in banned.items() for form in (word, f"{word}s", f"{word}es")}
    tokens = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", MEANT.sub("", f"{name} {text}"))
    return [forms[token.lower()] for token in tokens if token.lower() in forms]


def private_phrases(text: str) -> list[str]:
    return [
        f"{' '.join(found[0].split())!r}: {say}"
        for say, pattern in PHRASES.items()
        for found in re.finditer(pattern, text, re.MULTILINE)
    ]


def test_words_and_sentences_are_plain() -> None:
    found = {
        name: Counter(private_words(name, text) + private_phrases(text))
        for name in files()
        for text in [(ROOT / name).read_text()]
    }
    wrong = [f"{name}: {dict(words)}" for name, words in found.items() if words]
    assert found and not wrong, "\n".join(wrong)


def test_the_rule_finds_what_is_private() -> None:
    assert private_words("a.c", "hc_letter; LetterBox; mailbox; doorbell; PILES") == [
        "letter: say point-to-point message, p2p", "letter: say point-to-point message, p2p", "pile: say queue"
    ]  # fmt: skip
    assert private_words("a.md", "small letters; no room; --mail-type") == []
    assert private_words("a.py", "a room") and not private_words("a.c", "size_t room")
    assert len(private_phrases("/* Who waits drives. One a rank, one a rank. Of a set: all.\n# Who is it?\n")) == 3
    assert (
        len(private_phrases("two a stage; seconds a byte; a block better lost than reused; memory for whoever asks"))
        == 4
    )
    assert private_phrases("The rank that waits drives. That is all. One per rank, of course. Others then wait.") == []


def test_the_glossary_is_in_order() -> None:
    """Each word of ours is explained once, in alphabetical order."""
    words = re.findall(r"^\| \*\*(.+?)\*\*", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert len(words) > 30
    assert words == sorted(set(words), key=str.lower)
