/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* kubelet's configuration: the file and its drop-ins, as kubelet itself puts them together. */

#include <jansson.h>

#include "file.h"

/* One file of it, an object; path is where it lies. A later one overrides an earlier one. */
typedef void (*kubelet_config_t)(const json_t *part, const char *path, void *userdata);

/* Hands over every part in order: config.json, then config.json.d/ *.conf in lexical order
 * (AL2023), else kubelet-config.json (AL2), else config (Bottlerocket, which is YAML). A part that
 * is none is passed over. False when there is no configuration that can be read.
 * Source: facts of amazon-eks-ami and of Bottlerocket; kubelet's --config-dir. */
bool kubelet_config_read(const struct files *f, kubelet_config_t part, void *userdata);

/* The last value that kubelet's arguments give: "--max-pods", as --max-pods=N or --max-pods N. They
 * override its configuration. The file in which it stands, or NULL. Source: facts of amazon-eks-ami
 * (NODEADM_KUBELET_ARGS, bootstrap.sh's drop-ins). */
const char *kubelet_argument(const struct files *f, const char *name, char *ret, size_t size);
