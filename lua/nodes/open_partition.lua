#!lua
-- Bring a partition to the revision of its node. Create it if it does not exist; change nothing if it is up to date. A partition that is
-- newer than the record answers `newer` with its revision: Redis lost a change of the record. A row is an `option`, with its name and its
-- value as `options` reads it, '' for the default, or the `weight` of a tenant.
-- ARGV: revision lock_ms max_deliveries journal_max | kind name value
-- RETURNS: ok deleted newer(revision)
local state, known = unpack(redis.call('HMGET', key.meta, 'state', 'revision'))
if state == 'deleted' then return {'deleted'} end
local revision = tonumber(known or 0)
if revision > tonumber(arg.revision) then return {'newer', known} end

-- Default values are not stored: every operation reads all that are.
local function put(name, value)
  if value == '' then redis.call('HDEL', key.meta, name) else redis.call('HSET', key.meta, name, value) end
end

if not known then redis.call('HSET', key.meta, 'cursor', '0-0', 'tail', '0-0', 'token', '0') end
if revision < tonumber(arg.revision) then
  local weighted = ''
  redis.call('HSET', key.meta, 'revision', arg.revision, 'lock_ms', arg.lock_ms, 'max_deliveries', arg.max_deliveries,
    'journal_max', arg.journal_max)
  redis.call('UNLINK', key.fair_weights)
  for _, row in ipairs(rows) do
    if row.kind == 'option' then
      put(row.name, row.value)
    else
      redis.call('HSET', key.fair_weights, row.name, row.value)
      weighted = '1'
    end
  end
  put('weighted', weighted)
  local ordered, by_key, limits = unpack(redis.call('HMGET', key.meta, 'ordered', 'by_key', 'limits'))
  -- What waits behind the heads of groups goes out as what waited at a bound of its key that was lifted.
  if not ordered and redis.call('EXISTS', key.group_heads) == 1 then redis.call('HSET', key.meta, 'keyed', '1', 'unordered', '1') end
  -- For good: operations go on to count the locks that are counted now.
  if by_key then redis.call('HSET', key.meta, 'keyed', '1') end
  if not limits then redis.call('HDEL', key.meta, 'rate_at') end
end
return {'ok'}
