/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The shape of an instance's user data, never its content: that may hold secrets. Pure. */

#include "util.h"

enum userdata_form {
	USERDATA_EMPTY,
	USERDATA_MULTIPART,
	USERDATA_NODE_CONFIG, /* all of it is one */
	USERDATA_SCRIPT,
	USERDATA_CLOUD_CONFIG,
	USERDATA_TOML,     /* Bottlerocket's settings */
	USERDATA_IGNITION, /* of Flatcar and its like */
	USERDATA_GZIP,
	USERDATA_OTHER,
	_USERDATA_FORM_MAX
};

enum userdata_fault {
	USERDATA_SOUND,
	USERDATA_NOT_FIRST,    /* something stands before the MIME header */
	USERDATA_NO_BOUNDARY,  /* the header names none */
	USERDATA_NO_PART,      /* the boundary that it names never comes */
	USERDATA_NOT_CLOSED,   /* the closing boundary is missing: nodeadm gives up */
	USERDATA_WRONG_TYPE,   /* a NodeConfig in a part that is not application/node.eks.aws */
	USERDATA_BAD_ENCODING, /* base64 that is none */
	_USERDATA_FAULT_MAX
};

/* What nodeadm asks of a NodeConfig's cluster. */
enum {
	USERDATA_NAME = 1,
	USERDATA_ENDPOINT = 2,
	USERDATA_CA = 4,
	USERDATA_CIDR = 8,
	USERDATA_CLUSTER = 15,
};

struct userdata_shape {
	enum userdata_form form;
	enum userdata_fault fault;
	unsigned parts;      /* of a multipart document */
	bool node_config;    /* one where nodeadm looks for it */
	unsigned cluster;    /* bits of what it says of the cluster */
	bool bootstrap_call; /* of /etc/eks/bootstrap.sh */
	bool other_call;     /* something else that may join the node, or bring what does */
	bool compressed;     /* a part of it, or all, could not be looked into */
};

/* Bytes as metadata gives them. */
void userdata_parse(const char *data, size_t len, struct userdata_shape *ret);
const char *userdata_form_name(enum userdata_form f);
const char *userdata_fault_text(enum userdata_fault f); /* "" for USERDATA_SOUND */
