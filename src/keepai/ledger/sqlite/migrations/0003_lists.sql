create index input_skipped on input (workflow_id, source, type) where status = 'skipped';
create index mutation_ended on mutation (workflow_id, connector, status) where status in ('failed', 'skipped');
