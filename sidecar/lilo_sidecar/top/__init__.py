from ..options_asking import AskOptions


def run(options: AskOptions) -> int:
    return 2
