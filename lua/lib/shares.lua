-- Shares: how a subscriber's credit lies in a node of several partitions. Each has a part of it, the credit in its
-- `subscribers`. The first partition is the bank: its `shares` say what a subscriber may hold in all and how much of that is
-- lent to the others. Lent is never less than what they have, for credit is taken out of one before it is put into another;
-- what is lost on the way is missed until the next count (guarantee 3).
-- Of a pool, the bank is the collection's own partition. There, a share has a scope too: what of the collection it is for.
-- NEEDS: shares
local shares = {}

function shares.banks(subscriber)
  return arg.number == '0' and not subscriber.pool
end

-- `born` names a count: what was taken out before it is not put in after it. Before the first count nothing is lent.
function shares.read(subscriber)
  local line = redis.call('HGET', key.shares, subscriber.subid) or '0'
  local born, total, lent, counting, scope = string.match(line, '^(%d+) (%d+) (%d+) (%d) ?(.*)$')
  if not born then return {born = line, total = subscriber.limit, lent = 0, counting = false, scope = ''} end
  return {born = born, total = tonumber(total), lent = tonumber(lent), counting = counting == '1', scope = scope}
end

function shares.write(subscriber, share)
  local line = share.born
  if shares.banks(subscriber) then
    line = string.format('%s %d %d %d', share.born, share.total, share.lent, share.counting and 1 or 0)
    if share.scope ~= '' then line = line .. ' ' .. share.scope end
  end
  redis.call('HSET', key.shares, subscriber.subid, line)
end
