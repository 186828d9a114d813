#!lua
-- Note that a node, or a lease over several queues, is of a format now, unless it is deleted.
-- ARGV: format
-- RETURNS: ok gone
if redis.call('HEXISTS', key.node, 'incarnation') == 0 then return {'gone'} end
redis.call('HSET', key.node, 'format', arg.format)
return {'ok'}
