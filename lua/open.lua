#!lua
-- Bring a partition to the revision of its node: make it when it is not there yet, with tokens from `token` on; change
-- nothing when it is as new.
-- KEYS: meta
-- ARGV: revision token lock_ms max_deliveries dead_letters journal_max partitions ordered queueing keep_ms keep_items keep_bytes paused
-- RETURNS: ok deleted
-- WRITES: meta
local meta = redis.call('HMGET', key.meta, 'state', 'revision')
if meta[1] == 'deleted' then return {'deleted'} end
if not meta[2] then
  redis.call('HSET', key.meta, 'state', 'open', 'cursor', '0-0', 'tail', '0-0', 'token', arg.token)
end
if not meta[2] or tonumber(meta[2]) < tonumber(arg.revision) then
  redis.call('HSET', key.meta, 'revision', arg.revision, 'lock_ms', arg.lock_ms, 'max_deliveries', arg.max_deliveries,
    'dead_letters', arg.dead_letters, 'journal_max', arg.journal_max, 'partitions', arg.partitions,
    'ordered', arg.ordered, 'queueing', arg.queueing,
    'keep_ms', arg.keep_ms, 'keep_items', arg.keep_items, 'keep_bytes', arg.keep_bytes,
    'paused', arg.paused)
end
return {'ok'}
