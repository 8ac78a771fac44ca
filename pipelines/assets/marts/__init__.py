"""The marts: tables for reports and dashboards."""
