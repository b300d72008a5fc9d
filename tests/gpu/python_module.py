"""examples/python on the card: a torch tensor there, on a stream of torch's own, gives the bits of the same pictures from the host.

    MEGAVIT_LIBRARY=build/cuda/libmegavit.so python_module.py MODEL
"""
import os
import sys

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python"))
import megavit  # noqa: E402

COUNT = 8


def main():
    model = megavit.Model(sys.argv[1])
    engine = megavit.Engine(model, backend="cuda", max_images=COUNT)
    side = model.info.image_size
    pictures = numpy.random.default_rng(1).integers(0, 256, (COUNT, side, side, 3), numpy.uint8)
    expected = engine.encode(list(pictures))
    same = True
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for _ in range(20):
                batch = torch.zeros((COUNT, side, side, 3), dtype=torch.uint8, device="cuda")
                batch += torch.from_numpy(pictures).to("cuda", non_blocking=True)  # the encode comes behind this on the stream,
                rows = engine.encode(batch)
                doubled = rows * 2                                                 # and this behind the encode
                del batch, rows
                same &= numpy.array_equal(doubled.cpu().numpy(), expected * 2)
    engine.wait()
    print("%s - examples/python: torch tensors on the card, on torch's current stream, give the host's bits" % ("ok" if same else "not ok"))
    sys.exit(not same)


if __name__ == "__main__":
    main()
