"""Print a script that completes commands in a shell.

examples:
  sotto completion bash > ~/.local/share/bash-completion/completions/sotto
  sotto completion zsh > ~/.zfunc/_sotto      with fpath+=~/.zfunc before compinit in ~/.zshrc
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))


def run(args: argparse.Namespace) -> None:
    import shtab

    from sotto_cli import command_parser

    print(shtab.complete(command_parser(), args.shell))
