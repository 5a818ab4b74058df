"""A training loop of your own: learn from the digits 0 to 4, search among 5 to 9.

The network never sees a 5, 6, 7, 8 or 9 in training. The measure is Recall@1 on them: how often the
nearest other picture shows the same digit. Each 8x8 picture of scikit-learn's digits is put at a
random position of a 16x16 canvas, so that what carries over from seen to unseen digits is to
ignore the position.

The loss and the number of steps are chosen without the digits 5 to 9: a network trained on 0 and 1
is measured on 2, 3 and 4, and the best setting then trains on 0 to 4.

Run it with `python examples/digits.py`. About ten seconds on two cores, no download.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from kinspace.evaluation import recall_at_k
from kinspace.losses import Contrastive, ProxyAnchor, Triplet
from kinspace.samplers import classes_by_samples

DIM = 64
CANVAS = 16
SAMPLES = 16  # of each class in a batch
STEPS = (50, 100)
LOSSES = ("contrastive", "triplet", "proxy_anchor")
SEEDS = (0, 1, 2)


def digits(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """All 1,797 pictures on canvases, (n, 1, 16, 16) with values in 0..1, and their digits."""
    data = load_digits()
    pictures = torch.tensor(data.images, dtype=torch.float32) / 16
    canvases = torch.zeros(len(pictures), 1, CANVAS, CANVAS)
    corners = torch.randint(CANVAS - 8 + 1, (len(pictures), 2), generator=generator)
    for canvas, picture, (top, left) in zip(canvases, pictures, corners.tolist(), strict=True):
        canvas[0, top : top + 8, left : left + 8] = picture
    return canvases, torch.tensor(data.target)


def network() -> nn.Module:
    """Two convolutions, a maximum over all positions, and an embedding layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(64, DIM),
    )


def criterion_of(loss: str, classes: int) -> nn.Module:
    """The loss as a module; proxy-anchor has a proxy for each class."""
    if loss == "proxy_anchor":
        return ProxyAnchor(classes, DIM)
    return Contrastive() if loss == "contrastive" else Triplet()


def train(
    pictures: Tensor, labels: Tensor, loss: str, steps: tuple[int, ...], seed: int
) -> dict[int, nn.Module]:
    """Networks after each of these numbers of steps, of one training."""
    torch.manual_seed(seed)
    model, criterion = network(), criterion_of(loss, int(labels.max()) + 1)
    optimizer = torch.optim.AdamW(
        [
            {"params": model.parameters(), "lr": 1e-3},
            {"params": criterion.parameters(), "lr": 1e-1},  # proxies, which start at random
        ]
    )
    batches = classes_by_samples(labels, classes=len(labels.unique()), samples=SAMPLES, seed=seed)
    found, step = {}, 0
    while step < max(steps):
        for batch in batches:
            embeddings = nn.functional.normalize(model(pictures[batch]), dim=1)
            value = criterion(embeddings, labels[batch])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            step += 1
            if step in steps:
                copy = network()
                copy.load_state_dict(model.state_dict())
                found[step] = copy
    return found


@torch.inference_mode()
def recall(model: nn.Module, pictures: Tensor, labels: Tensor) -> float:
    """Recall@1 of the pictures among each other."""
    return float(recall_at_k(model(pictures), labels.numpy(), (1,))[1])


def choose(pictures: Tensor, labels: Tensor) -> tuple[str, int]:
    """The loss and the steps with the best Recall@1 on 2, 3 and 4 after training on 0 and 1."""
    learn, validate = labels < 2, (labels >= 2) & (labels < 5)
    found: dict[tuple[str, int], float] = {}
    for loss in LOSSES:
        models = train(pictures[learn], labels[learn], loss, STEPS, seed=0)
        for steps, model in models.items():
            found[loss, steps] = recall(model, pictures[validate], labels[validate])
            print(f"{loss:13}{steps:4} steps  Recall@1 on 2, 3 and 4: {found[loss, steps]:6.1%}")
    return max(found, key=found.__getitem__)


def main() -> None:
    """Choose the settings, train on 0 to 4, and print Recall@1 on 5 to 9 for three seeds."""
    pictures, labels = digits(torch.Generator().manual_seed(0))
    loss, steps = choose(pictures, labels)
    print(f"\nchosen: {loss}, {steps} steps. Trained on 0 to 4, Recall@1 on 5 to 9, never seen:")
    seen = labels < 5
    test = pictures[~seen], labels[~seen]
    print(f"{'raw pixels':16}{recall(nn.Flatten(), *test):8.1%}")
    for seed in SEEDS:
        torch.manual_seed(seed)
        before = recall(network(), *test)
        model = train(pictures[seen], labels[seen], loss, (steps,), seed)[steps]
        print(f"seed {seed}: {before:8.1%} before training, {recall(model, *test):6.1%} after")


if __name__ == "__main__":
    main()
