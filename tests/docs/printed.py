"""What a page shows as printed, compared with what its code prints."""

import re

NUMBER = r"-?\d+(?:\.\d+)?"


def text_and_numbers(printed: str) -> tuple[str, list[float]]:
    """What was printed without its numbers, and the numbers that a rerun prints again."""
    printed = re.sub(rf"{NUMBER}( s\b)", r"\1", printed)
    printed = re.sub(rf"expected to gain {NUMBER}", "", printed)
    return re.sub(NUMBER, "", printed).strip(), [float(x) for x in re.findall(NUMBER, printed)]
