#!/usr/bin/env python3
"""coverage.py LLVM_COV PROFILE OUTPUT PROGRAM...: lines and branches of megavit.h and tools/ that the tests reach, all together.

The header is compiled into every test: what one of them reaches is reached. What none reaches is written to OUTPUT, by function and line."""
import collections
import os
import subprocess
import sys

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


macros = {}
for program in programs:
    text = subprocess.run([llvm_cov, 'export', '-format=lcov', f'-instr-profile={profile}', program], check=True, capture_output=True,
                          text=True).stdout
    name = None
    for record in text.splitlines():
        kind, _, rest = record.partition(':')
        if kind == 'SF':
            name = os.path.normpath(rest.removeprefix(root))
            if name == 'tools/stb.c' or (name != 'megavit.h' and not name.startswith('tools/')):
                name = None
            elif name not in macros:
                macros[name] = macro_lines(name)
        elif name is None:
            continue
        elif kind == 'FN':
            line, function = rest.split(',', 1)
            functions[name][int(line)] = function.rsplit(':', 1)[-1]
        elif kind == 'DA':
            line, times = map(int, rest.split(',')[:2])
            if line not in macros[name]:
                lines[name][line] += times
        elif kind == 'BRDA':
            line, block, branch, times = rest.split(',')
            if int(line) not in macros[name]:
                branches[name][int(line), int(block), int(branch)] += 0 if times == '-' else int(times)


def share(counts):
    return 100 * sum(times > 0 for times in counts.values()) / len(counts) if counts else 100.0


def line_of(branch):
    return branch[0]


print(f'{"file":32} {"lines":>8} {"branches":>9}')
for name in sorted(lines):
    print(f'{name:32} {share(lines[name]):7.2f}% {share(branches[name]):8.2f}%')
tools = [name for name in lines if name.startswith('tools/')]
print(f'{"tools/, together":32} {share({(n, k): v for n in tools for k, v in lines[n].items()}):7.2f}% '
      f'{share({(n, k): v for n in tools for k, v in branches[n].items()}):8.2f}%')

with open(output, 'w') as missed:
    for name in sorted(lines):
        source = open(name).read().split('\n')
        starts = sorted(functions[name])
        places = {line: 'line' for line, times in lines[name].items() if times == 0}
        for branch, times in branches[name].items():
            if times == 0:
                places.setdefault(line_of(branch), 'branch')
        for line in sorted(places):
            function = functions[name][max((s for s in starts if s <= line), default=starts[0])] if starts else '?'
            missed.write(f'{name}:{line}: {function}: {places[line]}: {source[line - 1].strip()}\n')
print(f'what is missed, by name: {output}')
