#!/usr/bin/env python3
"""coverage.py [--since=COMMIT] LLVM_COV PROFILE OUTPUT PROGRAM...: lines and branches of megavit.h and tools/ that the tests reach, all together.

The header is compiled into every test: what one of them reaches is reached. What none reaches is written to OUTPUT, by function and line,
and at its end the functions that miss most branches. Of the lines that are new since COMMIT the shares are counted apart. Exit code 1: the
header's shares, or those of its new lines, are below the floors."""
import collections
import os
import re
import subprocess
import sys

FLOORS = 98.6, 93.7      # of the header: percent of lines, and of branches
NEW_FLOORS = 98.0, 95.0  # of its lines that are new since COMMIT
# Copies of the header that tests share (tests/declare), and how many lines come before its first one.
SHARED = {'whole/megavit.h': 1, 'declared/megavit.h': 4}

since = sys.argv.pop(1).removeprefix('--since=') if sys.argv[1].startswith('--since=') else ''
llvm_cov, profile, output, programs = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
root = os.getcwd() + '/'
lines = collections.defaultdict(collections.Counter)     # file -> line -> times
branches = collections.defaultdict(collections.Counter)  # file -> (line, block, branch) -> times
functions = collections.defaultdict(dict)                # file -> line -> name


def macro_lines(name):
    """Lines of #define: what is reached of them is known where they are used."""
    found, inside = set(), False
    for number, line in enumerate(open(name), 1):
        inside = inside or line.startswith('#define')
        if inside:
            found.add(number)
        inside = inside and line.rstrip('\n').endswith('\\')
    return found


def new_lines(commit):
    """(file, line) of every line that the files have and had not at the commit."""
    diff = subprocess.run(['git', 'diff', '-U0', commit, '--', 'megavit.h', 'tools'], check=True, capture_output=True, text=True).stdout
    found, name = set(), None
    for line in diff.splitlines():
        if line.startswith('+++ '):
            name = line.removeprefix('+++ b/')
        elif hunk := re.match(r'@@ -\S+ \+(\d+)(?:,(\d+))? @@', line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            found.update((name, number) for number in range(first, first + count))
    return found


macros = {}
for program in programs:
    text = subprocess.run([llvm_cov, 'export', '-format=lcov', f'-instr-profile={profile}', program], check=True, capture_output=True,
                          text=True).stdout
    name, behind = None, 0
    for record in text.splitlines():
        kind, _, rest = record.partition(':')
        if kind == 'SF':
            name = os.path.normpath(rest.removeprefix(root))
            behind = SHARED.get('/'.join(name.split('/')[-2:]), 0)
            if behind:
                name = 'megavit.h'
            if name == 'tools/stb.c' or (name != 'megavit.h' and not name.startswith('tools/')):
                name = None
            elif name not in macros:
                macros[name] = macro_lines(name)
        elif name is None:
            continue
        elif kind == 'FN':
            line, function = rest.split(',', 1)
            functions[name][int(line) - behind] = function.rsplit(':', 1)[-1]
        elif kind == 'DA':
            line, times = map(int, rest.split(',')[:2])
            line -= behind
            if line not in macros[name]:
                lines[name][line] += times
        elif kind == 'BRDA':
            line, block, branch, times = rest.split(',')
            if int(line) - behind not in macros[name]:
                branches[name][int(line) - behind, int(block), int(branch)] += 0 if times == '-' else int(times)


def share(counts):
    return 100 * sum(times > 0 for times in counts.values()) / len(counts) if counts else 100.0


def line_of(branch):
    return branch[0]


def is_below(title, shares, floors):
    below = any(found < floor for found, floor in zip(shares, floors))
    if below:
        print(f'{title}: below the floors of {floors[0]}% of lines and {floors[1]}% of branches')
    return below


print(f'{"file":32} {"lines":>8} {"branches":>9}')
for name in sorted(lines):
    print(f'{name:32} {share(lines[name]):7.2f}% {share(branches[name]):8.2f}%')
tools = [name for name in lines if name.startswith('tools/')]
print(f'{"tools/, together":32} {share({(n, k): v for n in tools for k, v in lines[n].items()}):7.2f}% '
      f'{share({(n, k): v for n in tools for k, v in branches[n].items()}):8.2f}%')
new_shares = NEW_FLOORS
if since:
    new = new_lines(since)
    for title, names in ('tools/', tools), ('megavit.h', ['megavit.h']):
        new_shares = (share({(n, k): v for n in names for k, v in lines[n].items() if (n, k) in new}),
                      share({(n, k): v for n in names for k, v in branches[n].items() if (n, line_of(k)) in new}))
        print(f'{"new since " + since + ", " + title:32} {new_shares[0]:7.2f}% {new_shares[1]:8.2f}%')

most = collections.Counter()
with open(output, 'w') as missed:
    for name in sorted(lines):
        source = open(name).read().split('\n')
        starts = sorted(functions[name])

        def function_of(line):
            return functions[name][max((s for s in starts if s <= line), default=starts[0])] if starts else '?'

        places = {line: 'line' for line, times in lines[name].items() if times == 0}
        for branch, times in branches[name].items():
            if times == 0:
                places.setdefault(line_of(branch), 'branch')
                most[name, function_of(line_of(branch))] += 1
        for line in sorted(places):
            mark = ' (new)' if since and (name, line) in new else ''
            missed.write(f'{name}:{line}: {function_of(line)}: {places[line]}{mark}: {source[line - 1].strip()}\n')
    missed.write('\nbranches missed, by function:\n')
    for (name, function), count in most.most_common():
        missed.write(f'{count:5} {name}: {function}\n')
print(f'what is missed, by name: {output}')
below = [is_below('megavit.h', (share(lines['megavit.h']), share(branches['megavit.h'])), FLOORS),
         is_below('what is new of megavit.h', new_shares, NEW_FLOORS)]
sys.exit(any(below))
