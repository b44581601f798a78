"""Sudoku and Zebra as clauses for an independent SAT solver. It shares no code with the package's search."""

from itertools import combinations, product

from pysat.solvers import Cadical153


class SudokuClauses:
    """Boards of one size. One solver is used for the solutions of many puzzles."""

    def __init__(self, box_rows, box_columns):
        self.side = side = box_rows * box_columns
        rows = [[(r, c) for c in range(side)] for r in range(side)]
        columns = [[(r, c) for r in range(side)] for c in range(side)]
        corners = product(range(0, side, box_rows), range(0, side, box_columns))
        boxes = [[(r + i, c + j) for i in range(box_rows) for j in range(box_columns)] for r, c in corners]
        self.solver, self.switch = Cadical153(), side**3
        for r, c in (cell for row in rows for cell in row):
            self.solver.add_clause([self.says(r, c, digit) for digit in range(side)])
        for unit in (*rows, *columns, *boxes):
            for digit in range(side):
                for a, b in combinations(unit, 2):
                    self.solver.add_clause([-self.says(*a, digit), -self.says(*b, digit)])

    def says(self, row, column, digit):
        return (row * self.side + column) * self.side + digit + 1

    def solutions(self, known, most=2):
        """Return up to `most` boards that agree with `known`, {cell: digit}."""
        self.switch += 1  # the clauses that exclude known solutions are for this puzzle only
        facts = [self.switch, *(self.says(*divmod(cell, self.side), digit) for cell, digit in known.items())]
        found = []
        while len(found) < most and self.solver.solve(assumptions=facts):
            true = [literal for literal in self.solver.get_model() if 0 < literal <= self.side**3]
            found.append([(literal - 1) % self.side for literal in true])
            self.solver.add_clause([-self.switch, *(-literal for literal in true)])
        return found


RELATIONS = {
    "=": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "immediate-left": lambda x, y: x + 1 == y,
    "left-of": lambda x, y: x < y,
    "nbr": lambda x, y: abs(x - y) == 1,
    "inbetween": lambda x, y, z: x < y < z,
}


def zebra_solutions(words, houses, attributes, most=2):
    """Return up to `most` tables, rows of values by house, that agree with clue tokens."""

    def stands(attribute, value, house):
        return (attribute * houses + value) * houses + house + 1

    found, clues = [], " ".join(words).split("CLUE_END")[:-1]
    with Cadical153() as solver:
        for attribute, value in product(range(attributes), range(houses)):
            solver.add_clause([stands(attribute, value, house) for house in range(houses)])
            for a, b in combinations(range(houses), 2):
                solver.add_clause([-stands(attribute, value, a), -stands(attribute, value, b)])
                solver.add_clause([-stands(attribute, a, value), -stands(attribute, b, value)])
        for clue in clues:
            kind, *rest = clue.split()
            rest = [word for word in rest if word not in ("LHS", "RHS")]
            references = [(rest[i], int(rest[i + 1]), int(rest[i + 2])) for i in range(0, len(rest), 3)]
            places = [range(houses) if sort == "c" else [value] for sort, _, value in references]
            true = RELATIONS.get(kind, lambda x: x in (0, houses - 1))
            for where in product(*places):
                if not true(*where):
                    solver.add_clause(
                        [
                            -stands(a, v, h)
                            for (sort, a, v), h in zip(references, where, strict=True)
                            if sort == "c"
                        ]
                    )
        while len(found) < most and solver.solve():
            true = [literal for literal in solver.get_model() if literal > 0]
            table = [[0] * houses for _ in range(attributes)]
            for literal in true:
                rest, house = divmod(literal - 1, houses)
                table[rest // houses][house] = rest % houses
            found.append(table)
            solver.add_clause([-literal for literal in true])
    return found
