"""engines: what the pipeline's verbs do. record writes them down, simulate moves values through slots."""
