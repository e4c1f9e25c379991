# SPDX-License-Identifier: Apache-2.0
# The EKS-optimised AMI of Amazon Linux 2023 with nodewhy in it. From the top directory:
#   packer init packaging/ami/nodewhy.pkr.hcl
#   packer build -var region=us-west-2 -var kubernetes_version=1.33 \
#     -var 'rpms=["nodewhy.x86_64.rpm","nodewhy-npd.noarch.rpm"]' packaging/ami/nodewhy.pkr.hcl
# The packages are those of `make rpm`, made on Amazon Linux 2023.
packer {
  required_version = ">= 1.8.0"
  required_plugins {
    amazon = {
      source  = "github.com/hashicorp/amazon"
      version = ">= 1.2.0"
    }
  }
}

variable "region" {
  type = string
}

variable "kubernetes_version" {
  type        = string
  description = "Minor version of the cluster, like 1.33."
}

variable "architecture" {
  type    = string
  default = "x86_64"

  validation {
    condition     = contains(["x86_64", "arm64"], var.architecture)
    error_message = "The architecture is x86_64 or arm64."
  }
}

variable "rpms" {
  type        = list(string)
  description = "Files of the packages nodewhy and, for node-problem-detector, nodewhy-npd."

  validation {
    condition     = length(var.rpms) > 0
    error_message = "Name at least the package nodewhy."
  }
}

variable "subnet_id" {
  type        = string
  default     = null
  description = "Where to build; the default VPC when not given."
}

data "amazon-parameterstore" "eks" {
  region = var.region
  name   = "/aws/service/eks/optimized-ami/${var.kubernetes_version}/amazon-linux-2023/${var.architecture}/standard/recommended/image_id"
}

source "amazon-ebs" "node" {
  region        = var.region
  subnet_id     = var.subnet_id
  source_ami    = data.amazon-parameterstore.eks.value
  instance_type = var.architecture == "arm64" ? "m6g.large" : "m5.large"
  ssh_username  = "ec2-user"
  ami_name      = "nodewhy-eks-${var.kubernetes_version}-${var.architecture}-${formatdate("YYYYMMDDhhmmss", timestamp())}"
  imds_support  = "v2.0"

  metadata_options {
    http_endpoint = "enabled"
    http_tokens   = "required"
  }

  tags = {
    source_ami         = data.amazon-parameterstore.eks.value
    kubernetes_version = var.kubernetes_version
  }
}

build {
  sources = ["source.amazon-ebs.node"]

  provisioner "shell" {
    inline = ["mkdir /tmp/nodewhy"]
  }

  provisioner "file" {
    sources     = var.rpms
    destination = "/tmp/nodewhy/"
  }

  # Ends the build unless it exits with 0.
  provisioner "shell" {
    script          = "${path.root}/bake.sh"
    execute_command = "sudo sh '{{ .Path }}' /tmp/nodewhy/*.rpm"
  }

  provisioner "shell" {
    inline = ["rm -r /tmp/nodewhy"]
  }
}
