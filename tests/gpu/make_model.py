"""Saves a SigLIP tower of random weights in the shape of SigLIP2-base at 224 px.
usage: make_model.py DIRECTORY"""
import sys

import torch
from transformers import SiglipVisionConfig, SiglipVisionModel

torch.manual_seed(0)
model = SiglipVisionModel(SiglipVisionConfig())
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.normal_(1.0 if "norm" in name and name.endswith("weight") else 0.0, 0.1)
        else:
            parameter.normal_(0.0, parameter[0].numel() ** -0.5)
model.to(torch.bfloat16).save_pretrained(sys.argv[1])
