#!/usr/bin/env python3
"""Independent reference for agent/backend/selftest.c: every operator in plain float64 loops, its
gradient by central differences of the float64 forward. Prints the table of stored answers.
Run it after changing sizes in selftest.c: python3 tests/ops/selftest_reference.py"""
import math


def value(i, salt):
    return ((i * 37 + salt * 11) % 101 - 50) / 64.0


def fill(count, salt):
    return [value(i, salt) for i in range(count)]


def fingerprint(*arrays):
    flat = [x for array in arrays for x in array]
    return sum(x * value(i, 99) for i, x in enumerate(flat))


def gradients(forward, inputs, dy):
    """d(sum(forward * dy)) / d(each input element)."""
    out = []
    for array in inputs:
        grad = []
        for i in range(len(array)):
            keep, h = array[i], 1e-5
            array[i] = keep + h
            up = sum(a * b for a, b in zip(forward(), dy))
            array[i] = keep - h
            down = sum(a * b for a, b in zip(forward(), dy))
            array[i] = keep
            grad.append((up - down) / (2 * h))
        out.append(grad)
    return out


def report(name, forward, inputs, dy):
    y = forward()
    if dy is None:
        dy = fill(len(y), 7)
    print('    {"%s", run_%s, %.9g, %.9g},' % (name, name, fingerprint(y),
                                               fingerprint(*gradients(forward, inputs, dy))))


def linear():
    rows, n_in, n_out = 7, 9, 18
    x, w, b = fill(rows * n_in, 1), fill(n_out * n_in, 2), fill(n_out, 3)

    def forward():
        return [sum(x[r * n_in + k] * w[o * n_in + k] for k in range(n_in)) + b[o]
                for r in range(rows) for o in range(n_out)]
    report("linear", forward, [x, w, b], None)


def layernorm():
    rows, width = 5, 19
    x, g, b = fill(rows * width, 1), fill(width, 2), fill(width, 3)

    def forward():
        y = []
        for r in range(rows):
            row = x[r * width:(r + 1) * width]
            mean = sum(row) / width
            var = sum((v - mean) ** 2 for v in row) / width
            y += [(v - mean) / math.sqrt(var + 1e-5) * g[j] + b[j] for j, v in enumerate(row)]
        return y
    report("layernorm", forward, [x, g, b], None)


def embed():
    rows, width, context, vocabulary = 8, 6, 4, 5
    tokens = [(3 * r + 1) % vocabulary for r in range(rows)]
    table, positions = fill(vocabulary * width, 1), fill(context * width, 2)

    def forward():
        return [table[tokens[r] * width + j] + positions[r % context * width + j]
                for r in range(rows) for j in range(width)]
    report("embed", forward, [table, positions], None)


def attention():
    samples, context, width, heads = 2, 7, 8, 2
    size = width // heads
    qkv = fill(samples * context * 3 * width, 1)

    def forward():
        y = [0.0] * (samples * context * width)
        for s in range(samples):
            for h in range(heads):
                def at(t, part, j):
                    return qkv[(s * context + t) * 3 * width + part * width + h * size + j]
                for t in range(context):
                    e = [math.exp(sum(at(t, 0, j) * at(u, 1, j) for j in range(size)) /
                                  math.sqrt(size)) for u in range(t + 1)]
                    for j in range(size):
                        y[(s * context + t) * width + h * size + j] = sum(
                            e[u] * at(u, 2, j) for u in range(t + 1)) / sum(e)
        return y
    report("attention", forward, [qkv], None)


def gelu():
    x = [4 * v for v in fill(37, 1)]

    def forward():
        return [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x]
    report("gelu", forward, [x], None)


def relu():
    x = fill(37, 1)
    report("relu", lambda: [max(v, 0.0) for v in x], [x], None)


def add():
    a, b = fill(37, 1), fill(37, 2)
    report("add", lambda: [p + q for p, q in zip(a, b)], [a, b], None)


def conv3x3():
    samples, c_in, c_out, height, width = 2, 3, 4, 5, 6
    x, w, b = fill(samples * c_in * height * width, 1), fill(c_out * c_in * 9, 2), fill(c_out, 3)

    def forward():
        y = []
        for s in range(samples):
            for o in range(c_out):
                for r in range(height):
                    for c in range(width):
                        total = b[o]
                        for i in range(c_in):
                            for ty in range(3):
                                for tx in range(3):
                                    p, q = r + ty - 1, c + tx - 1
                                    if 0 <= p < height and 0 <= q < width:
                                        total += (x[((s * c_in + i) * height + p) * width + q] *
                                                  w[(o * c_in + i) * 9 + 3 * ty + tx])
                        y.append(total)
        return y
    report("conv3x3", forward, [x, w, b], None)


def maxpool2():
    planes, height, width = 6, 5, 6
    x = fill(planes * height * width, 1)

    def forward():
        return [max(x[(p * height + 2 * r + i) * width + 2 * c + j]
                    for i in range(2) for j in range(2))
                for p in range(planes) for r in range(height // 2) for c in range(width // 2)]
    report("maxpool2", forward, [x], None)


def cross_entropy():
    rows, classes = 6, 11
    logits = [4 * v for v in fill(rows * classes, 1)]
    target = [(5 * r + 2) % classes for r in range(rows)]

    def forward():
        total = 0.0
        for r in range(rows):
            row = logits[r * classes:(r + 1) * classes]
            total += math.log(sum(math.exp(v) for v in row)) - row[target[r]]
        return [total]
    report("cross_entropy", forward, [logits], [1.0 / rows])


def adamw():
    count, steps = 21, 2
    x, m, v = fill(count, 1), [0.0] * count, [0.0] * count
    lr, b1, b2, decay, scale = 0.05, 0.9, 0.95, 0.1, 0.5
    for t in range(1, steps + 1):
        g = [scale * a for a in fill(count, 1 + t)]
        for i in range(count):
            m[i] = b1 * m[i] + (1 - b1) * g[i]
            v[i] = b2 * v[i] + (1 - b2) * g[i] ** 2
            step = (m[i] / (1 - b1 ** t)) / (math.sqrt(v[i] / (1 - b2 ** t)) + 1e-8)
            x[i] -= lr * (step + decay * x[i])
    print('    {"adamw", run_adamw, %.9g, %.9g},' % (fingerprint(x), sum(a * a for a in g)))


for case in (linear, layernorm, embed, attention, gelu, relu, add, conv3x3, maxpool2,
             cross_entropy, adamw):
    case()
