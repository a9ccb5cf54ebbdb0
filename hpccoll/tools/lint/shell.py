# SPDX-License-Identifier: Apache-2.0
"""Splits a shell script into commands and words: quotes, comments, continuations, here-documents, `$( )`.

It supports the parts of bash that job scripts use. It executes nothing and ignores control flow: a command inside
`if` or `for` is a command like any other.
"""

import ast
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

KEYWORDS = {
    "if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case", "esac", "function", "!", "{",
    "}", "time", "exec", "command", "nohup",
}  # fmt: skip
"""Words that may stand before a command."""
CLOSING = {"(": ")", "{": "}"}
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
EXPANSION = re.compile(  # $((sum)), ${name}, ${name:-default}, $name
    r"\$\(\((?P<sum>.*?)\)\)|\$\{(?P<braced>\w+)(?:(?::?-)(?P<default>[^}]*))?\}|\$(?P<plain>[A-Za-z_]\w*)"
)

BARE = re.compile(r"\$(\w+|\{\w+\})")
SUBSTITUTION = re.compile(r"(?:[A-Za-z_]\w*\+?=)?\$\((?!\()(.*)\)", re.DOTALL)
ARRAY = re.compile(r"\$\{(\w+)\[[@*]\]\}")


@dataclass(frozen=True)
class Command:
    """A simple command."""

    words: tuple[str, ...]
    """Without quotes, and with variables unexpanded."""
    line: int
    """The line in which the command starts."""
    end: str
    """The operator or newline that ends the command."""

    @property
    def assignments(self) -> dict[str, str]:
        """The variables set by `NAME=value` before the command, alone, or after `export`.

        `NAME+=more` has the key `NAME+`. An array has the value `(words)`, with their quotes.
        """
        words = [w for w in self.words if w not in ("export", "declare", "-x", "readonly", "local", "env")]
        found = {}
        for word in words:
            if not ASSIGNMENT.match(word):
                break
            name, _, value = word.partition("=")
            found[name] = value
        return found

    @property
    def argv(self) -> tuple[str, ...]:
        """The command itself, without assignments before it; empty if there is nothing else."""
        words = list(self.words)
        if words[:1] == ["export"]:
            return tuple(words)
        while words and (ASSIGNMENT.match(words[0]) or words[0] == "env"):
            words.pop(0)
        return tuple(words)


class Lexer:
    """Reads a script in one pass; `commands()` yields its commands in order."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.documents: list[str] = []  # delimiters of here-documents whose bodies begin at the next line

    def commands(self) -> Iterator[Command]:
        """Yield all simple commands, without the keywords before them."""
        words: list[str] = []
        line = 1
        while True:
            self.skip_blanks()
            if not words:
                line = self.line
            if words in ([], ["for"]) and (sum_ := self.arithmetic()):
                words.append(sum_)
                continue
            if self.at >= len(self.text) or self.text[self.at] in "\n;&|()":
                end = self.operator()
                if end == "&" and self.text[self.at : self.at + 1] == ">":  # &>file: both streams
                    continue
                while words and words[0] in KEYWORDS:
                    words.pop(0)
                if words:
                    yield Command(tuple(words), line, end)
                if not end:
                    return
                words = []
            elif not self.redirection():
                words.append(self.word())

    def skip_blanks(self) -> None:
        """Skip spaces, continued lines, and a comment."""
        while self.at < len(self.text):
            if self.text.startswith("\\\n", self.at):
                self.step(2)
            elif self.text[self.at] in " \t\r":
                self.step(1)
            elif self.text[self.at] == "#":
                while self.at < len(self.text) and self.text[self.at] != "\n":
                    self.step(1)
            else:
                return

    def step(self, count: int) -> str:
        """Read `count` characters."""
        passed = self.text[self.at : self.at + count]
        self.line += passed.count("\n")
        self.at += count
        return passed

    def operator(self) -> str:
        """Read a newline, or `;`, `&`, `&&`, `|`, `||`, `(`, `)`; "" at the end of the text."""
        if self.at >= len(self.text):
            return ""
        end = self.step(1)
        while end in ("&", "|", ";") and self.text.startswith(end, self.at):
            return end + self.step(1)
        if end == "\n":
            self.skip_documents()
        return end

    def skip_documents(self) -> None:
        """Skip the bodies of here-documents, which begin after the line that names their ends."""
        for delimiter in self.documents:
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                line = self.step((stop if stop >= 0 else len(self.text)) + 1 - self.at)
                if line.strip() == delimiter:
                    break
        self.documents = []

    def arithmetic(self) -> str:
        """Read `((...))`, in which `<<` is no here-document; "" if there is none, as where two subshells begin."""
        if not self.text.startswith("((", self.at):
            return ""
        at, line = self.at, self.line
        if (found := self.nested()).endswith("))"):
            return found
        self.at, self.line = at, line
        return ""

    def redirection(self) -> bool:
        """Skip `2>&1`, `> file`, `<<END` and similar redirections; return whether there was one."""
        found = re.compile(r"\d*(<<<|<<-?|&>>?|[<>]&|>>|<>|[<>])(?!\()").match(self.text, self.at)
        if not found:
            return False
        self.step(len(found[0]))
        self.skip_blanks()
        target = self.word()
        if found[1] in ("<<", "<<-"):
            self.documents.append(target)
        return True

    def word(self) -> str:
        """Read one word without its quotes; `$(...)`, `${...}` and `<(...)` are kept whole."""
        parts = []
        while self.at < len(self.text) and self.text[self.at] not in " \t\r\n;&|()<>":
            parts.append(self.piece())
            if parts[-1] == "=" and self.text.startswith("(", self.at) and ASSIGNMENT.fullmatch("".join(parts)):
                parts.append(self.nested())  # an array
        if not parts:  # `<(` or a stray character: always make progress
            parts.append(self.step(1))
            if self.text.startswith("(", self.at):
                parts.append(self.nested())
        return "".join(parts)

    def piece(self) -> str:
        """Read a quoted part, an expansion, an escaped character, or one plain character."""
        character = self.step(1)
        if character == "\\":
            return self.step(1)
        if character == "'":
            return self.until("'")
        if character == "`":
            return f"`{self.until('`')}`"
        if character == '"':
            return self.double_quoted()
        if character == "$" and self.text[self.at : self.at + 1] in CLOSING:
            return "$" + self.nested()
        if character == "$" and self.text.startswith("'", self.at):
            return self.escaped()
        return character

    def until(self, character: str) -> str:
        """Read up to the next `character`, which is skipped."""
        stop = self.text.find(character, self.at)
        inside = self.step((stop if stop >= 0 else len(self.text)) - self.at)
        self.step(1)
        return inside

    def escaped(self) -> str:
        """Read `'...'` behind a `$`, in which a backslash escapes the quote; other escapes stay as they are."""
        self.step(1)
        parts = []
        while self.at < len(self.text) and self.text[self.at] != "'":
            parts.append(self.step(2) if self.text[self.at] == "\\" else self.step(1))
        self.step(1)
        return "".join(parts).replace("\\'", "'")

    def double_quoted(self) -> str:
        """Read up to the closing double quote, which is skipped."""
        parts = []
        while self.at < len(self.text) and self.text[self.at] != '"':
            if self.text.startswith("\\\n", self.at):
                self.step(2)
            elif self.text[self.at] == "\\" and self.text[self.at + 1 : self.at + 2] in '"\\$`':
                self.step(1)
                parts.append(self.step(1))
            elif self.text[self.at] == "$" and self.text[self.at + 1 : self.at + 2] in CLOSING:
                parts.append(self.step(1) + self.nested())
            else:
                parts.append(self.step(1))
        self.step(1)
        return "".join(parts)

    def nested(self) -> str:
        """Read from an opening bracket to its closing one, both included; those in quotes or comments do not count."""
        start, opening, depth = self.at, self.text[self.at], 0
        while self.at < len(self.text):
            character = self.text[self.at]
            if character in "'\"\\":
                self.piece()
            elif character == "#" and opening == "(" and self.text[self.at - 1].isspace():
                self.skip_blanks()
            else:
                depth += (character == opening) - (character == CLOSING[opening])
                self.step(1)
                if depth == 0:
                    break
        return self.text[start : self.at]


def read(text: str) -> list[Command]:
    """Read all commands of a script."""
    return list(Lexer(text).commands())


def inner(command: Command) -> list[Command]:
    """Read the commands inside `bash -c "..."` and `name=$(...)`. Each ends as the outer command does."""
    texts = [found[1] for word in command.words if (found := SUBSTITUTION.fullmatch(word))]
    argv = command.argv
    if argv and argv[0].rpartition("/")[2] in ("bash", "sh"):
        options = (i for i, word in enumerate(argv) if re.fullmatch(r"-\w*c", word))
        texts += argv[next(options, len(argv)) + 1 :][:1]
    return [Command(found.words, command.line + found.line - 1, command.end) for text in texts for found in read(text)]


def expand(word: str, variables: Mapping[str, str]) -> str:
    """Expand `$x`, `${x}`, `${x:-default}` and `$((sums))` of known variables; the rest stays as it is."""

    def value(match: re.Match[str]) -> str:
        if match["sum"] is not None:
            return calculate(match["sum"], variables) or match[0]
        name = match["braced"] or match["plain"]
        return variables.get(name, match[0] if match["default"] is None else match["default"])

    return EXPANSION.sub(value, word)


def words_of(word: str, variables: Mapping[str, str]) -> list[str]:
    """Expand known variables; a word that is nothing but a variable (`srun $LAUNCHER ...`) becomes its words.

    A known array (`srun "${options[@]}" ...`) becomes its elements.
    """
    if (array := ARRAY.fullmatch(word)) and array[1] + "[@]" in variables:
        return shlex.split(variables[array[1] + "[@]"])
    return expand(word, variables).split() if BARE.fullmatch(word) else [expand(word, variables)]


def assign(name: str, value: str, variables: dict[str, str]) -> None:
    """Do `NAME=value`; an array is kept as `NAME[@]`, with quotes around its elements."""
    plain, more = name.removesuffix("+"), name.endswith("+")
    if value.startswith("(") and value.endswith(")"):
        words = [word for command in read(value[1:-1]) for word in command.words]
        elements = shlex.join(element for word in words for element in words_of(word, variables))
        variables[plain + "[@]"] = f"{variables.get(plain + '[@]', '')} {elements}" if more else elements
    else:
        variables[plain] = (variables.get(plain, "") if more else "") + expand(value, variables)


def calculate(text: str, variables: Mapping[str, str]) -> str:
    """Calculate a sum of whole numbers as the shell would; "" if a variable in it is not known."""
    known = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", lambda name: variables.get(name[1], "?"), text)
    try:
        tree = ast.parse(known.strip(), mode="eval").body
        return str(evaluate(tree))
    except (SyntaxError, ValueError, ZeroDivisionError):
        return ""


def evaluate(tree: ast.expr) -> int:
    """Evaluate + - * / % and brackets over whole numbers; ValueError for anything else."""
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return tree.value
    if isinstance(tree, ast.BinOp):
        left, right = evaluate(tree.left), evaluate(tree.right)
        if isinstance(tree.op, ast.Add):
            return left + right
        if isinstance(tree.op, ast.Sub):
            return left - right
        if isinstance(tree.op, ast.Mult):
            return left * right
        if isinstance(tree.op, ast.Div | ast.FloorDiv):
            return left // right
        if isinstance(tree.op, ast.Mod):
            return left % right
    raise ValueError(ast.dump(tree))
