#!/usr/bin/env python3
"""pages.py CLEAVE FOLDER COMMAND…: writes man pages and completions for bash and zsh into FOLDER.

All are made from the tables of options that `CLEAVE --help=json` prints, so they say what --help says. The COMMANDs are
the subcommands that the build expects; another list is an error.
"""
import json
import os
import re
import subprocess
import sys

PROGRAM = "cleave"
FILES = ("FILE", "PATH", "CONFIG", "DIR", "FOLDER", "TRACE")


def roff(text):
    """Escapes a text for a man page."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(("\\&" if line.startswith((".", "'")) else "") + line for line in text.split("\n"))


def title(name, section, version):
    return f'.TH {name.upper()} {section} "" "cleave {version}" "cleave"\n'


def paragraphs(text):
    """Joins the lines of a paragraph; a line that is indented stays as it is."""
    out = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.split("\n")
        indented = any(line.startswith(" ") for line in lines)
        out.append(".nf\n" + roff(block) + "\n.fi" if indented else roff(" ".join(lines)))
    return "\n.PP\n".join(out) + "\n"


def option_help(option):
    choices = option["choices"]
    said = option["help"]
    if choices:
        said += ": " + ", ".join(choices[:-1]) + (" or " if choices[1:] else "") + choices[-1]
    return said + (f" (default: {option['default']})" if option["default"] else "")


def options_section(table):
    rows = [(f"--{o['name']}", o["value"], option_help(o)) for o in table["options"]]
    rows += [("-h, --help", None, "print a help text and exit"), ("--version", None, "print the release and exit")]
    lines = [".SH OPTIONS\n"]
    for name, value, said in rows:
        shown = f"\\fB{roff(name)}\\fR" + (f" \\fI{roff(value)}\\fR" if value else "")
        lines.append(f".TP\n{shown}\n{roff(said)}\n")
    return "".join(lines)


EXIT = (".SH EXIT STATUS\n.TP\n0\nIt worked.\n.TP\n1\nIt failed; one line on standard error says why.\n"
        ".TP\n2\nThe options are wrong.\n")


def command_page(command, version, others):
    table = command["table"]
    name = f"{PROGRAM}-{table['command']}"
    see = [f"\\fB{PROGRAM}\\fR(1)"] + ["\\fBcleave.json\\fR(5)"] * (table["command"] in ("serve", "machine", "check"))
    return (title(name, 1, version)
            + f".SH NAME\n{roff(name)} \\- {roff(command['summary'])}\n"
            + f".SH SYNOPSIS\n\\fB{PROGRAM} {table['command']}\\fR {roff(table['usage'])}\n"
            + ".SH DESCRIPTION\n" + paragraphs(table["about"])
            + options_section(table) + EXIT
            + ".SH FILES\nThe pages of /usr/share/doc/cleave say more.\n"
            + ".SH SEE ALSO\n" + ", ".join(see) + "\n")


def program_page(commands, version):
    rows = "".join(f".TP\n\\fB{c['table']['command']}\\fR\n{roff(c['summary'])}\n" for c in commands)
    see = ", ".join(f"\\fBcleave\\-{c['table']['command']}\\fR(1)" for c in commands)
    return (title(PROGRAM, 1, version)
            + f".SH NAME\n{PROGRAM} \\- disaggregated LLM inference server\n"
            + f".SH SYNOPSIS\n\\fB{PROGRAM}\\fR \\fICOMMAND\\fR …\n"
            + ".SH DESCRIPTION\ncleave serves large language models over an HTTP API in the style of OpenAI's. The prompt "
              "phase and the token phase of a request can run on different machines.\n"
            + f".SH COMMANDS\n{rows}{EXIT}"
            + ".SH FILES\n.TP\n/etc/cleave/cleave.json\nThe config of the services.\n"
              ".TP\n/var/lib/cleave/models\nModels that a config names without a folder.\n"
            + f".SH SEE ALSO\n{see}, \\fBcleave.json\\fR(5)\n")


def config_keys(commands):
    """Yields (key, help, values) of the config, from the end of `cleave serve --help`."""
    more = next(c["table"]["more"] for c in commands if c["table"]["command"] == "serve")
    lines = [line for line in more.split("\n") if line.strip()][1:]
    for key, said, values in zip(lines[0::3], lines[1::3], lines[2::3], strict=True):
        yield key.strip(), said.strip(), values.strip()


def config_page(commands, version):
    rows = "".join(f".TP\n\\fB{roff(key)}\\fR\n{roff(said)}\n.br\n{roff(values)}\n"
                   for key, said, values in config_keys(commands))
    return (title("cleave.json", 5, version)
            + ".SH NAME\ncleave.json \\- config of a cluster\n"
            + ".SH DESCRIPTION\nA JSON file. A key such as \\fBhttp/listen\\fR is the member \\fIlisten\\fR of the object "
              "\\fIhttp\\fR. \\fBcleave check\\fR finds mistakes.\n"
            + f".SH KEYS\n{rows}"
            + ".SH SEE ALSO\n\\fBcleave\\-serve\\fR(1), \\fBcleave\\-machine\\fR(1)\n")


def bash(commands):
    names = " ".join(c["table"]["command"] for c in commands)
    keys = " ".join(f"{key}=" for key, _, _ in config_keys(commands))
    cases, values = [], []
    for command in commands:
        table = command["table"]
        options = " ".join(f"--{o['name']}" for o in table["options"]) + " --help --version"
        cases.append(f"        {table['command']}) options='{options}' ;;")
        for option in table["options"]:
            if option["choices"]:
                values.append(f"        {table['command']}--{option['name']}) words='{' '.join(option['choices'])}' ;;")
            elif option["name"] == "set":
                values.append(f"        {table['command']}--set) words='{keys}'; compopt -o nospace ;;")
    return f"""# bash completion for cleave

_cleave() {{
    local command=${{COMP_WORDS[1]}} word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} options= words=
    COMPREPLY=()
    if [[ $COMP_CWORD -eq 1 ]]; then
        mapfile -t COMPREPLY < <(compgen -W '{names} --help --version' -- "$word")
        return
    fi
    case $command in
{chr(10).join(cases)}
    esac
    case $command$before in
{chr(10).join(values)}
    esac
    if [[ -n $words ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    elif [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
    else
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}}
complete -F _cleave cleave
"""


def zsh_text(text):
    for character in "\\'[]:":
        text = text.replace(character, "'\\''" if character == "'" else "\\" + character)
    return text


def zsh_option(option):
    value = option["value"]
    flags = "*" if option["name"] in ("set", "hardware", "machines") else ""
    spec = f"'{flags}--{option['name']}[{zsh_text(option['help'])}]"
    if value:
        action = f"({' '.join(option['choices'])})" if option["choices"] else "_files" if value in FILES else ""
        spec += f":{zsh_text(value)}:{action}"
    return spec + "'"


def zsh(commands):
    described = "\n".join(f"        '{c['table']['command']}:{zsh_text(c['summary'])}'" for c in commands)
    cases = []
    for command in commands:
        table = command["table"]
        options = " \\\n                ".join([zsh_option(o) for o in table["options"]]
                                              + ["'(-h --help)'{-h,--help}'[print the help and exit]'",
                                                 "'--version[print the release and exit]'", "'*:argument:_files'"])
        cases.append(f"        {table['command']})\n            _arguments \\\n                {options} ;;")
    return f"""#compdef cleave

_cleave() {{
    local -a commands=(
{described}
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    local command=$words[2]
    shift words
    (( CURRENT-- ))
    case $command in
{chr(10).join(cases)}
    esac
}}

_cleave "$@"
"""


def main(program, folder, *expected):
    commands = json.loads(subprocess.run([program, "--help=json"], check=True, capture_output=True, text=True).stdout)["commands"]
    found = [c["table"]["command"] for c in commands]
    if sorted(found) != sorted(expected):
        sys.exit(f"the program has the commands {' '.join(found)}; meson.build lists {' '.join(expected)}")
    # The release alone: a page does not change with each commit.
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    pages = {"cleave.1": program_page(commands, version), "cleave.json.5": config_page(commands, version),
             "cleave.bash": bash(commands), "_cleave": zsh(commands)}
    for command in commands:
        pages[f"cleave-{command['table']['command']}.1"] = command_page(command, version, found)
    for name, text in pages.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)


main(*sys.argv[1:])
