"""What a log of ``last-calls.c`` says of a crash.

    python scripts/last-calls/tell.py LOG

The stack, the crashed thread's last calls, what other threads were in at that moment, and every call that had the same
handle as the one that crashed, or an address or a stream that such a call had.
"""

import sys
from typing import NamedTuple


class Note(NamedTuple):
    when: int
    thread: int
    state: str
    name: str
    words: tuple
    answer: str

    def __str__(self):
        words = ", ".join(self.words)
        return f"{self.when % 10**12 / 1e3:14.1f} us  {self.thread}  {self.state} {self.name}({words}){self.answer}"


def read(path):
    """The first lines, and the notes."""
    head, notes = [], []
    with open(path) as log:
        for line in log:
            words = line.split()
            if len(words) >= 8 and words[0].isdigit() and words[2] in "be":
                answer = f" = {words[9]}" if len(words) > 9 else ""
                notes.append(Note(int(words[0]), int(words[1]), words[2], words[3], tuple(words[4:8]), answer))
            elif not notes:
                head.append(line.rstrip())
    return head, notes


def in_flight(notes):
    """The calls that had begun and not ended, by thread."""
    open_calls = {}
    for note in notes:
        calls = open_calls.setdefault(note.thread, [])
        if note.state == "b":
            calls.append(note)
        elif calls and calls[-1].name == note.name:
            calls.pop()
    return {thread: calls for thread, calls in open_calls.items() if calls}


def main():
    head, notes = read(sys.argv[1])
    print(*head, sep="\n")
    thread = int(head[0].split()[-1])
    flight = in_flight(notes)
    print("\nthe crashed thread's last calls")
    print(*[note for note in notes if note.thread == thread][-30:], sep="\n")
    print("\nin the driver at that moment")
    for calls in flight.values():
        print(*calls, sep="\n")
    if thread not in flight:
        print("\nthe thread was in no call of the driver")
        return
    handle = flight[thread][-1].words[0]
    words = {handle}
    words |= {note.words[0] for note in notes if handle in note.words[1:] and note.state == "e"}
    words -= {"0", "0x1", "0x2"}
    print(f"\ncalls that had {', '.join(sorted(words))}")
    print(*[note for note in notes if words & set(note.words)], sep="\n")


if __name__ == "__main__":
    main()
