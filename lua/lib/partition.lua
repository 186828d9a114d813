-- The partition's clock, options and counters: read once when a script starts, written once when it ends.
-- NEEDS: meta
--- @include clock
local partition = {}

-- Gives nil when the caller may go on, else the reply that sends it away: `gone` (never opened), `deleted`, or `stale`
-- with the revision in force when the caller judged by another one.
function partition.load()
  local meta = redis.call('HMGET', key.meta, 'revision', 'state', 'lock_ms', 'max_deliveries', 'dead_letters',
    'cursor', 'tail', 'token', 'journal_max', 'confirms', 'partitions',
    'ordered', 'fence', 'owner')
  if meta[2] == 'deleted' then return {'deleted'} end
  if not meta[1] then return {'gone'} end
  if arg.revision ~= '' and arg.revision ~= meta[1] then return {'stale', meta[1]} end
  partition.now = clock.now()
  partition.stamp = string.format('%d', partition.now)
  partition.lock_ms = tonumber(meta[3])
  partition.deadline = partition.now + partition.lock_ms
  partition.deadline_text = string.format('%d', partition.deadline)
  partition.max_deliveries = tonumber(meta[4])
  partition.dead_letters = meta[5] == '1'
  partition.cursor, partition.tail = meta[6], meta[7]
  partition.token = tonumber(meta[8])
  partition.journal_max = meta[9]
  partition.confirms = meta[10] == '1'
  partition.several = meta[11] and meta[11] ~= '1'
  partition.ordered = meta[12] == '1'
  partition.fence, partition.owner = tonumber(meta[13] or 0), meta[14]
  partition.before = meta[6] .. ' ' .. meta[7] .. ' ' .. meta[8]
  return nil
end

function partition.save()
  local token = string.format('%d', partition.token)
  if partition.cursor .. ' ' .. partition.tail .. ' ' .. token ~= partition.before then
    redis.call('HSET', key.meta, 'cursor', partition.cursor, 'tail', partition.tail, 'token', token)
  end
end
