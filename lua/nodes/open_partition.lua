#!lua
-- Bring a partition to the revision of its node: make it when it is not there yet; change nothing when it is as new. One that
-- is newer than the record, or knows of more partitions, answers `newer` with its revision and that number: the record was lost.
-- ARGV: revision lock_ms max_deliveries dead_letters journal_max partitions ordered queueing keep_ms keep_items keep_bytes paused
-- RETURNS: ok deleted newer
local meta = redis.call('HMGET', key.meta, 'state', 'revision', 'partitions', 'tail')
if meta[1] == 'deleted' then return {'deleted'} end
local revision, partitions = tonumber(meta[2] or 0), tonumber(meta[3] or 0)
if revision > tonumber(arg.revision) or partitions > tonumber(arg.partitions) then
  return {'newer', meta[2], meta[3]}
end
if not meta[2] then
  redis.call('HSET', key.meta, 'state', 'open', 'cursor', '0-0', 'tail', '0-0', 'token', '0')
end
-- What is here by the earlier number is found here still: see `former`.
if partitions > 0 and partitions < tonumber(arg.partitions) then redis.call('HSET', key.meta, 'former', meta[4]) end
if revision < tonumber(arg.revision) then
  redis.call('HSET', key.meta, 'revision', arg.revision, 'lock_ms', arg.lock_ms, 'max_deliveries', arg.max_deliveries,
    'dead_letters', arg.dead_letters, 'journal_max', arg.journal_max, 'partitions', arg.partitions,
    'ordered', arg.ordered, 'queueing', arg.queueing,
    'keep_ms', arg.keep_ms, 'keep_items', arg.keep_items, 'keep_bytes', arg.keep_bytes,
    'paused', arg.paused)
end
return {'ok'}
