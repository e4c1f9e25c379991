/* One line a probe, in causal order. This list is the table of contents of the daemon. */
PROBE(link)
PROBE(imds)
PROBE(imds_hop_limit)
PROBE(dns)
PROBE(endpoint)
PROBE(cni_config)
PROBE(eni)
PROBE(limits)
