"""Magnet end to end: clusters within classes, batches of neighbors, classes found again.

The labels say only whether a digit is even or odd. Magnet does not press each class together: it
keeps clusters, here five a class, apart from those of the other class, draws batches of neighboring
clusters, and clusters again as the net moves. A sample is classified by the nearest clusters. Then
the example looks for what no label said: whether the nearest neighbor shows the same digit. Both
Magnet and a softmax keep much of that; on these digits the softmax keeps more, on merged species of
birds Magnet does (docs/results.md).

Run it with `python examples/magnet.py`. About ten seconds on two cores, no download.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from kinspace.clustering import ClusterIndex
from kinspace.evaluation import error_rate, knc_predict, recall_at_k
from kinspace.losses import Magnet, Softmax
from kinspace.samplers import classes_by_samples, neighborhoods
from kinspace.samplers.neighborhoods import clusters_of

DIM, CLUSTERS, STEPS, REFRESH = 16, 5, 300, 25


def digits() -> tuple[Tensor, Tensor]:
    """1,797 rows of 64 numbers, and the digit of each."""
    data = load_digits()
    return torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)


def network() -> nn.Module:
    """Two linear layers."""
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, DIM))


def train_magnet(rows: Tensor, parity: Tensor) -> tuple[nn.Module, Magnet, ClusterIndex]:
    """The net, the loss with its running variance, and the index of the last refresh."""
    torch.manual_seed(0)
    model, criterion, index = network(), Magnet(), ClusterIndex(CLUSTERS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with torch.no_grad():
        index.refresh(model(rows), parity)
    step = 0
    while step < STEPS:
        for batch in neighborhoods(index, clusters=6, samples=10, seed=step):
            samples = torch.as_tensor(batch)
            clusters, cluster_labels = clusters_of(index, samples)
            loss = criterion(model(rows[samples]), parity[samples], clusters, cluster_labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % REFRESH == 0:  # the clusters follow the net
                with torch.no_grad():
                    index.refresh(model(rows), parity)
                break
    return model, criterion, index


def train_softmax(rows: Tensor, parity: Tensor) -> nn.Module:
    """The same net with a softmax on the same labels."""
    torch.manual_seed(0)
    model, criterion = network(), Softmax(2, DIM)
    parameters = [*model.parameters(), *criterion.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    step = 0
    while step < STEPS:
        for batch in classes_by_samples(parity, classes=2, samples=32, seed=step):
            loss = criterion(model(rows[batch]), parity[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    return model


@torch.inference_mode()
def run() -> dict[str, float]:
    """Error by nearest clusters, and how often a neighbor is of the same digit."""
    rows, digit = digits()
    parity = digit % 2
    seen = torch.arange(len(rows)) % 4 > 0
    with torch.inference_mode(mode=False):
        model, criterion, index = train_magnet(rows[seen], parity[seen])
        softmax = train_softmax(rows[seen], parity[seen])
    test = model(rows[~seen])
    predicted = knc_predict(test, index.centers, index.cluster_labels, float(criterion.variance))
    return {
        "error": error_rate(parity[~seen].numpy(), predicted),
        "magnet": float(recall_at_k(test, digit[~seen].numpy(), (1,))[1]),
        "softmax": float(recall_at_k(softmax(rows[~seen]), digit[~seen].numpy(), (1,))[1]),
    }


def main() -> None:
    """Print what Magnet was trained for, and what it was not told."""
    found = run()
    print(f"even or odd, by the nearest clusters: error {found['error']:.1%}")
    print("the nearest other picture shows the same digit, which no label said:")
    print(f"  Magnet {found['magnet']:.1%}, softmax {found['softmax']:.1%}")


if __name__ == "__main__":
    main()
