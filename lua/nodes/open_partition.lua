#!lua
-- Bring a partition to the revision of its node. Create it if it does not exist; change nothing if it is up to date. A partition that is
-- newer than the record answers `newer` with its revision: Redis lost a change of the record.
-- ARGV: revision lock_ms max_deliveries dead_letters journal_max partitions ordered queueing keep_ms keep_items keep_bytes paused retry_delay limits by_key result_ms fair above | tenant weight
-- RETURNS: ok deleted newer
local state, known = unpack(redis.call('HMGET', key.meta, 'state', 'revision'))
if state == 'deleted' then return {'deleted'} end
local revision = tonumber(known or 0)
if revision > tonumber(arg.revision) then return {'newer', known} end

-- Default values are not stored: every operation reads all that are.
local function put(name, value, usual)
  if value == usual then redis.call('HDEL', key.meta, name) else redis.call('HSET', key.meta, name, value) end
end

if not known then redis.call('HSET', key.meta, 'cursor', '0-0', 'tail', '0-0', 'token', '0') end
if revision < tonumber(arg.revision) then
  redis.call('HSET', key.meta, 'revision', arg.revision, 'lock_ms', arg.lock_ms, 'max_deliveries', arg.max_deliveries,
    'journal_max', arg.journal_max)
  put('dead_letters', arg.dead_letters, '1')
  put('partitions', arg.partitions, '1')
  -- What waits behind the heads of groups goes out as what waited at a bound of its key that was lifted.
  if arg.ordered == '0' and redis.call('EXISTS', key.group_heads) == 1 then redis.call('HSET', key.meta, 'keyed', '1', 'unordered', '1') end
  put('ordered', arg.ordered, '0')
  put('queueing', arg.queueing, '1')
  put('keep_ms', arg.keep_ms, '0')
  put('keep_items', arg.keep_items, '0')
  put('keep_bytes', arg.keep_bytes, '0')
  put('paused', arg.paused, '0')
  put('retry_delay', arg.retry_delay, '')
  put('limits', arg.limits, '')
  put('by_key', arg.by_key, '')
  -- For good: scripts go on to count the locks that are counted now.
  if arg.by_key ~= '' then redis.call('HSET', key.meta, 'keyed', '1') end
  if arg.limits == '' then redis.call('HDEL', key.meta, 'rate_at') end
  put('result_ms', arg.result_ms, '3600000')
  put('fair', arg.fair, '')
  put('above', arg.above, '')
  put('weighted', #rows > 0 and '1' or '', '')
  redis.call('UNLINK', key.fair_weights)
  for _, row in ipairs(rows) do redis.call('HSET', key.fair_weights, row.tenant, row.weight) end
end
return {'ok'}
