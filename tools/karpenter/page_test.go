package karpenter


func page(rows []row) string { return "" }
