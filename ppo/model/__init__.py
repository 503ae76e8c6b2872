import os

import torch

# transformers imports DeepSpeed wherever accelerate is installed, too; it need not guess aloud.
os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
